"""简体中文。Keys and placeholders are those of words_en.py; a test holds the two together."""

WORDS = {
    "comma": "、",
    "gap": "",
    "s": "秒",
    "ms": "毫秒",
    "runs_one": "{number} 次运行",
    "runs_many": "{number} 次运行",
    "epochs_one": "{number} 个 epoch",
    "epochs_many": "{number} 个 epoch",
    "seeds_one": "{number} 个随机种子",
    "seeds_many": "{number} 个随机种子",
    "cores_one": "{number} 个可用核心",
    "cores_many": "{number} 个可用核心",
    # 标题
    "title": "梯度压缩下的数据并行训练",
    "kicker": "实验报告",
    "summary_heading": "摘要",
    "warnings_heading": "请谨慎解读",
    "method_heading": "实验方法",
    "environment_heading": "实验环境",
    "topology_heading": "拓扑结构",
    "results_heading": "实验结果",
    "plots_heading": "图表",
    "explanation_heading": "对比与分析",
    "runs_heading": "数据来源",
    "footer": "本报告由 horovod.lab 根据上列目录中的日志自动生成，没有任何数字是手工填写的。",
    "again": "用以下命令可以重做同样的实验：",
    # 名称
    "serial": "串行",
    "place_memory": "本机",
    "place_made": "{hosts} 台主机，链路 {rate}",
    "place_unlimited": "{hosts} 台主机，链路不限速",
    "row_at": "{row}（{place}）",
    "shortened": "简称：{names}。",
    "title_at": "{title}：{place}",
    # 摘要
    "scope": "共 {runs}：训练脚本 {script}，数据集 {dataset}，每次训练 {epochs}，{seeds}。",
    "only_row": "只有一种配置 {row}，训练用时 {time}。",
    "fastest": "最快的是 {row}：训练用时 {time}，速度是串行训练的 {speed_up} 倍。",
    "fastest_is_serial": "没有任何配置快于串行训练（{time}）；其次是 {row}，用时 {other}。",
    "fastest_without_serial": "最快的是 {row}：训练用时 {time}。",
    "accuracy_of_one": "其测试集准确率为 {high}。",
    "accuracy_same": (
        "从不同种子之间的波动来看，各配置的测试集准确率没有区别：最低 {low}（{worst}），最高 {high}（{best}"
        "）。"
    ),
    "accuracy_differs": (
        "准确率最高的是 {best}，为 {high}；最低的是 {worst}，为 {low}；差距超过了不同种子之间的波动。"
    ),
    "accuracy_one_seed": (
        "准确率最高的是 {best}，为 {high}；最低的是 {worst}，为 {low}；只有一个种子，无法判断这一差距是否出"
        "于偶然。"
    ),
    "bytes_saved": "{row} 发送的字节数是不压缩时的 1/{ratio}。",
    "compression_paid": (
        "压缩带来了收益：{row} 比不压缩的同一配置节省 {share} 的时间（{cases} 组对比中有 {faster} 组明显更快"
        "）。"
    ),
    "compression_paid_and_cost": (
        "压缩只在部分情况下带来收益：{row} 比不压缩的同一配置节省 {share} 的时间，但在 {cases} 组对比中，"
        "{faster} 组明显更快，{slower} 组明显更慢。"
    ),
    "compression_cost": (
        "在本实验中压缩没有带来收益：即使最好的情况 {row}，也比不压缩的同一配置多用 {share} 的时间。"
    ),
    "compression_did_not_pay": "在本实验中压缩减少了通信量，但没有明显缩短训练时间。",
    "crowded": "最多有 {ranks} 个进程共用 {cores}，因此看上去属于并行训练的开销，有一部分其实是在等待核心。",
    # 实验方法
    "script": "训练脚本",
    "arguments": "脚本参数",
    "dataset": "数据集",
    "places": "运行位置",
    "epochs": "训练轮数（epoch）",
    "seeds": "随机种子",
    "number_of_ranks": "进程数（rank）",
    "compressions": "压缩算法",
    "threads": "每个进程的线程数",
    "measured": (
        "时间为 rank 0 的训练时间，不含在测试集上的评估。单步时间取所有步的中位数；其中的等待时间，是训练线"
        "程停下来等待其他进程的梯度到达的时间。准确率为最后一个 epoch 结束后在测试集上的准确率。"
    ),
    # 警告
    "warn_datasets": "各次运行使用了不同的数据集（{values}），各行之间不可比较。",
    "warn_scripts": "各次并行运行使用了不同的脚本（{values}），各行之间不可比较。",
    "warn_arguments": "各次运行的脚本参数不同（{values}）。",
    "warn_epochs": "各次运行的 epoch 数不同（{values}），训练时间与准确率不可比较。",
    "warn_seeds": "各行的随机种子不完全相同，可能缺少某些运行。",
    "warn_not_identical": "以下运行结束时，各进程的模型参数不一致：{runs}。这些结果不可信。",
    # 环境
    "part": "项目",
    "what": "内容",
    "absent": "未发现",
    "section_hardware": "硬件",
    "section_software": "软件",
    "entry_servers": "服务器",
    "entry_cpu": "处理器",
    "entry_cores": "核心数",
    "entry_memory": "内存",
    "entry_nic": "网卡",
    "entry_nic_speed": "网卡速率",
    "entry_gpu": "GPU 型号",
    "entry_gpu_number": "GPU 数量",
    "entry_gpu_connection": "GPU 互连",
    "entry_os": "操作系统",
    "entry_kernel": "内核",
    "entry_nic_driver": "网卡驱动",
    "entry_gpu_driver": "GPU 驱动",
    "entry_python": "Python",
    "entry_pytorch": "PyTorch",
    "entry_numpy": "NumPy",
    "entry_horovod": "horovod",
    "entry_cuda": "CUDA",
    "entry_mpi": "MPI",
    "entry_nccl": "NCCL",
    "hosts": "主机",
    "host": "主机名",
    "usable_cores": "可用核心数",
    "topology_title": "主机与互连",
    "topology_caption": "生成本报告时检测到的主机及其连接。",
    # 结果
    "algorithm": "算法",
    "ranks": "设备数",
    "training_seconds": "训练时间（秒）",
    "step_seconds": "单步时间（毫秒）",
    "wait_seconds": "其中等待（毫秒）",
    "accuracy": "准确率（%）",
    "speed_up": "加速比",
    "efficiency": "扩展效率（%）",
    "bytes_per_step": "每步发送（KB）",
    "compression_ratio": "压缩比",
    "runs_by_seed": "运行（按种子）",
    "results_caption": "每行对应一次运行。",
    "results_caption_spread": "{seeds} 个随机种子的均值 ± 样本标准差。",
    "results_place": "运行位置：{place}。",
    "why_no_log": "日志中没有记录。",
    "why_no_waiting": "串行训练无须等待其他进程。",
    "why_no_serial": "没有 epoch 数相同的串行运行可供比较。",
    "why_no_bytes": "串行训练不发送数据。",
    "why_no_uncompressed": "在同一位置没有设备数相同且不压缩的运行可供比较。",
    # 图表
    "loss_axis": "损失",
    "accuracy_axis": "测试集准确率（%）",
    "epoch_axis": "epoch",
    "time_axis": "训练时间（秒）",
    "step_axis": "单步时间中位数（毫秒）",
    "training_axis": "训练时间（秒）",
    "share_axis": "元素占比（%）",
    "relative_error_axis": "单个元素的相对误差",
    "computing": "计算（含被计算掩盖的通信）",
    "waiting": "等待其他进程",
    "loss_by_epoch_title": "损失与 epoch",
    "loss_by_epoch_caption": (
        "曲线：rank 0 在训练数据上的损失，按步数等分后取平均。标记：每个 epoch 结束后在测试集上的损失。颜色"
        "表示算法，线型表示设备数。"
    ),
    "loss_by_time_title": "损失与时间",
    "loss_by_time_caption": "横轴换成训练时间，越靠左表示越早达到。",
    "accuracy_by_epoch_title": "准确率与 epoch",
    "accuracy_by_epoch_caption": "每个 epoch 结束后在测试集上的准确率。",
    "accuracy_by_time_title": "准确率与时间",
    "accuracy_by_time_caption": "横轴换成训练时间，越靠左越快，越高越准确。",
    "steps_title": "单步时间的构成",
    "steps_caption": "斜线部分是全规约（allreduce）额外增加的时间；被计算掩盖的通信不会显示出来。",
    "times_title": "各算法的训练时间",
    "times_caption": "各行的 epoch 数相同。有多个种子时，细线表示种子之间的波动。",
    "accuracies_title": "各算法的准确率",
    "accuracies_caption": (
        "最后一个 epoch 结束后的准确率。圆点为均值；有多个种子时，短竖线为单次运行。横轴不从 0 开始。"
    ),
    "codecs_title": "编解码器的误差",
    "codecs_caption": (
        "用每种编码对 131,072 个服从 N(0, 1) 的数做一次量化。相对误差为 |还原值 − x| / |x|，等于 1（10⁰）表"
        "示该元素变成了 0，最左端包含所有精确还原的元素。NMSE 为整体的 |还原值 − x|² / |x|²。"
    ),
    # 分析
    "speed_title": "加速比",
    "no_serial": "没有串行运行，无法计算加速比。请在 --np 中加入 1。",
    "steps_divided": (
        "一个 epoch 中，{row} 训练了 {steps} 步，而串行训练为 {serial_steps} 步：每个进程只训练自己那一份数"
        "据，所有进程合起来，一步用到的样本数是原来的 {ranks} 倍。"
    ),
    "steps_same": "一个 epoch 中，{row} 与串行训练的步数相同（{steps} 与 {serial_steps}）。",
    "steps_other": "一个 epoch 中，{row} 训练了 {steps} 步，串行训练为 {serial_steps} 步。",
    "speed_best": (
        "理想情况下，加速比等于设备数。效率最高的是 {row}：{ranks} 个设备的加速比为 {speed_up}，扩展效率为 "
        "{efficiency}。"
    ),
    "speed_worst": "效率最低的是 {row}：{ranks} 个设备的加速比为 {speed_up}，扩展效率为 {efficiency}。",
    "slower_than_serial": "这比单个设备还慢。",
    "near_ideal": "这已接近理想值。",
    "part_of_ideal": "这超过了理想值的一半。",
    "far_from_ideal": "这不到理想值的一半。",
    "limits_title": "瓶颈在哪里",
    "wait_share": "{row} 的一步用时 {step} 毫秒，其中 {wait} 毫秒（{share} %）在等待其他进程。",
    "compute_beside_serial": "其余 {compute} 毫秒是串行单步时间 {alone} 毫秒的 {factor} 倍。",
    "limit_none": "两者的额外开销都不到串行单步时间的十分之一。",
    "limit_waiting": "因此，离理想值的差距主要来自等待。",
    "limit_cores": "因此，离理想值的差距主要来自计算变慢：进程数多于核心数，只能轮流使用核心。",
    "limit_unknown": "因此，离理想值的差距主要来自计算变慢；这些进程共用多少个核心不得而知。",
    "limit_compute": (
        "因此，离理想值的差距主要来自计算变慢。每个进程都有自己的核心；它们共用的其他资源（内存、缓存、引擎"
        "自身的线程等）不在本实验的测量范围内。"
    ),
    "pay_title": "压缩是否划算",
    "pair_faster": "{row}：{time} 对 {plain}（不压缩），快 {share}。",
    "pair_slower": "{row}：{time} 对 {plain}（不压缩），慢 {share}。",
    "pair_same": "{row}：{time} 对 {plain}（不压缩），没有明显差别（{share}）。",
    "waiting_less": "发送的字节数为 1/{ratio}，每步等待 {wait} 对 {plain}：传输确实是进程等待的原因之一。",
    "waiting_more": (
        "发送的字节数为 1/{ratio}，每步等待却是 {wait} 对 {plain}：很可能是编码与解码的开销超过了传输缩短所"
        "节省的时间。"
    ),
    "waiting_same": (
        "发送的字节数为 1/{ratio}，每步等待时间相近（{wait} 对 {plain}）：进程等待的并不是数据传输。"
    ),
    "rule": "差别超过 {share}，并且超过较大波动的两倍，才算作明显。",
    "between_places": (
        "同样的训练 {row}：每步 {first}（{here}）与 {second}（{there}），后者是前者的 {factor} 倍。"
    ),
    "learning_title": "准确率",
    "accuracy_change": "压缩对准确率影响最大的是 {row}：相差 {points} 个百分点。",
    "within_seeds": "这不超过种子之间波动（{spread}）的两倍，数据看不出压缩的影响。",
    "beyond_seeds": "这超过了种子之间波动（{spread}）的两倍，很可能是压缩的影响。",
    "seeds_unknown": "只有一个种子，无法得知偶然因素的影响有多大；可以用 --seeds 3 重做。",
    "codec_loses": "对服从正态分布的数，{codec} 的一次量化损失 {share} 的能量。",
    "fewer_updates_lower": (
        "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率低 {points} 个百分点：epoch 数不变时"
        "，步数更少、批量更大，可能会损失准确率。"
    ),
    "fewer_updates_not_lower": (
        "{row} 更新模型 {steps} 次，串行训练更新 {alone} 次，最终准确率并不更低（相差 {points} 个百分点）。"
    ),
    "same_model_title": "各进程的模型一致",
    "places_same": "运行位置没有影响训练结果：同样的训练在各个位置得到相同的校验和。",
    "places_apart": "不同位置的校验和并不完全一致：各处求和的划分方式可能不同。",
    "identical": "每次并行运行结束时，所有进程的模型参数逐比特相同。",
    "not_identical": "{runs} 中各进程的副本出现了偏差，准确率只代表 rank 0。",
    # 运行
    "runs_caption": (
        "每个目录包含 plan.json（运行计划）、log.jsonl（每一步的记录）和 output.txt（各进程的输出）。校验和"
        "为 rank 0 参数的 SHA-256 的开头部分。"
    ),
    "run": "目录",
    "row": "配置",
    "seed": "种子",
    "steps": "步数",
    "same_model": "各进程一致",
    "checksum": "校验和",
    "yes": "是",
    "no": "否",
    "one_rank": "单进程",
}
